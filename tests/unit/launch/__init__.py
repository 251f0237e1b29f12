"""Tests the launch room through its door."""
