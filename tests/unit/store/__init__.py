"""Tests the store through its two doors, StoreWriter and StoreReader."""
