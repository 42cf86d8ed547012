"""The paper's quantities, measurable on any data."""
