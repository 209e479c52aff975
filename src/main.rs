//! The executable: hands over to [`podlink::cmd`] and ends with its exit code.

fn main() -> std::process::ExitCode {
    podlink::cmd::main()
}
