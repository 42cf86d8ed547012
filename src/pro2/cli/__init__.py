"""The command line: parsing and printing only; each command calls one public function.

Modules here import nothing heavy at the top, so that `pro2 --help` answers at once.
"""
