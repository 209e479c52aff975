# Runs one script for the agent: plain UTF-8 streams, and an exit code that can be relied on.
param([string]$PodlinkScript)
$ProgressPreference = 'SilentlyContinue'
$OutputEncoding = New-Object System.Text.UTF8Encoding $false
try { [Console]::OutputEncoding = $OutputEncoding; [Console]::InputEncoding = $OutputEncoding } catch { }
if (Test-Path variable:PSStyle) { $PSStyle.OutputRendering = 'PlainText' }
# a call of a script that does not parse would end with success
$PodlinkErrors = $null
[void][System.Management.Automation.Language.Parser]::ParseFile($PodlinkScript, [ref]$null, [ref]$PodlinkErrors)
if ($PodlinkErrors) {
    foreach ($PodlinkError in $PodlinkErrors) {
        [Console]::Error.WriteLine("ParserError: line $($PodlinkError.Extent.StartLineNumber): $($PodlinkError.Message)")
    }
    exit 1
}
$global:LASTEXITCODE = 0
& $PodlinkScript
exit $global:LASTEXITCODE
