"""What is known of jobs and servers, told as sentences. Pure: the facts are gathered elsewhere."""
