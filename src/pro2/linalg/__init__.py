"""Pure mathematics on any Array-API array: namespace, device and dtype follow the input."""
