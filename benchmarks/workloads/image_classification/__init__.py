"""Image classification with a ResNet-18, in a choice of precisions and memory layouts."""
