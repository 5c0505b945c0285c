"""Looks at a stage: its dashboard's widgets as text or as a picture, and its alarms, with or without AWS."""
