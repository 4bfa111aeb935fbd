"""Losses, optimizer, schedules and fine-tuning."""
