@rem Runs the script beside it, a UTF-8 text, as a batch file of its own: its commands are not shown, its exit code stays.
@echo off
"%SystemRoot%\System32\chcp.com" 65001 >nul
"%~dp0script.cmd"
