"""What machine and what software a result was measured on."""
