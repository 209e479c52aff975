@echo off
rem podlink: Windows runs this once, at the end of its installation. The work is done by podlink.exe beside it.
rem `podlink setup` renews this file. Your own commands go into the folder hooks beside it, as NAME.cmd or NAME.ps1.
setlocal EnableExtensions DisableDelayedExpansion
set "PODLINK_INSTALL_LOG=C:\OEM\podlink-install.log"
rem where that cannot be written, because somebody holds it open or there is no C:\OEM, another one takes its place
2>nul (>>"%PODLINK_INSTALL_LOG%" echo [%DATE% %TIME%] install.bat: "%~dp0podlink.exe" agent install) || set "PODLINK_INSTALL_LOG=%TEMP%\podlink-install-%RANDOM%.log"
if not exist "%~dp0podlink.exe" (
    >>"%PODLINK_INSTALL_LOG%" echo [%DATE% %TIME%] install.bat: podlink.exe is missing beside this file; it may be in the quarantine of a virus scanner
    exit /b 2
)
"%~dp0podlink.exe" agent install >>"%PODLINK_INSTALL_LOG%" 2>&1 <nul
set "PODLINK_RC=%ERRORLEVEL%"
>>"%PODLINK_INSTALL_LOG%" echo [%DATE% %TIME%] install.bat: ended with exit code %PODLINK_RC%
exit /b %PODLINK_RC%
