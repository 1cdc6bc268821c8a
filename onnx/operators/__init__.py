"""The operators of ONNX by topic, composed of the methods of `Tensor`; `table` holds them all."""
