"""What users write: functions that handle jobs, and what these are told."""
