"""What the broker does with packets: connecting, publishing, subscribing, delivering, sharing."""
