"""Settings of Mosquitto, converted."""
