"""Models of an ORM as fields of jobs: their name and key travel, and they are loaded again where the job runs."""
