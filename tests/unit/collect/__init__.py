"""Tests the collect room through its door."""
