# Runs one script for the agent as `-File` would: UTF-8 both ways, no progress, no colours, and the exit code of native
# programs kept. Windows PowerShell 5.1 reads this too.
#   launcher.ps1 SCRIPT [stdin]    with `stdin`, its lines are the script's $input
#
# The script runs in the global scope, as under `-File`, so nothing here may be left for it to see: no variable is set
# but those that are meant for it.

$ProgressPreference = 'SilentlyContinue'
$OutputEncoding = [System.Text.UTF8Encoding]::new($false)
# fails where there is no console
try { [Console]::OutputEncoding = $OutputEncoding; [Console]::InputEncoding = $OutputEncoding } catch { $Error.Clear() }
if ([Console]::IsOutputRedirected -and $ExecutionContext.SessionState.PSVariable.Get('PSStyle')) {
    $PSStyle.OutputRendering = 'PlainText'
}

try {
    # A pipeline like the one of `-File`. The operators `&` and `.` would not do: a scope of its own hides preference
    # variables from modules, and `.` is what scripts look for to tell whether they are only being loaded.
    [void](& {
        $pipeline = [runspace]::DefaultRunspace.CreateNestedPipeline()
        $pipeline.Commands.Add([System.Management.Automation.Runspaces.Command]::new($args[0], $false, $false))
        $printer = [System.Management.Automation.Runspaces.Command]::new('Out-Default')
        $printer.MergeUnclaimedPreviousCommandResults = 'Error, Output'
        $pipeline.Commands.Add($printer)
        # not by the launcher's own automatic variable: to name it here would take stdin from every script
        if ($args.Count -gt 1) {
            while ($null -ne ($line = [Console]::In.ReadLine())) { [void]$pipeline.Input.Write($line) }
        }
        $pipeline
    } @args).Invoke()
} catch {
    # what ended the script, in the words of `-File`
    & {
        $cause = $args[0].Exception
        if ($cause.InnerException) { $cause = $cause.InnerException }
        $record = [System.Management.Automation.ErrorRecord]::new($cause, 'Podlink', 'NotSpecified', $null)
        if ($cause -is [System.Management.Automation.IContainsErrorRecord]) { $record = $cause.ErrorRecord }
        $text = ($record | Microsoft.PowerShell.Utility\Out-String).TrimEnd([char[]]"`r`n")
        foreach ($line in $text -split "`r?`n") { $Host.UI.WriteErrorLine($line) }
    } $_
    exit 1
}
# not an `exit 0`: that would undo what the script has told the host
if ($ExecutionContext.SessionState.PSVariable.GetValue('global:LASTEXITCODE')) {
    exit $ExecutionContext.SessionState.PSVariable.GetValue('global:LASTEXITCODE')
}
