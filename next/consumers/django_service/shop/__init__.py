"""A shop with Django: an order that is not paid within 15 minutes is closed."""
