"""Programs: functions of arrays, traced once for all sizes."""
