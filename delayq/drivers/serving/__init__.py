"""What makes of any `Broker` a connection for producers and a driver for workers."""
