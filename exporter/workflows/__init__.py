"""Run the whole pipeline, and work with export folders. Only these modules base decisions on measurements."""
