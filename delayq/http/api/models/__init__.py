"""What requests and answers of the API hold, as msgspec structs: bodies are read by them, OpenAPI is made of them."""
