"""Prepare images for training without TensorFlow: decode, crop, resize, flip and normalize."""
