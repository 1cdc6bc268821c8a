"""What operators of ONNX and the reader of models share: values, nodes, rows of the table of operators."""
