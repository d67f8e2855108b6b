"""A server of models: the Open Inference Protocol over HTTP, calls shared, no queue endless."""
