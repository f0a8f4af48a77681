"""What tests share: a server of their own, a queue in few words, backends in memory."""
