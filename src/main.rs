//! The `unsay` command: everything it does lives in `unsay::cli`.

fn main() -> std::process::ExitCode {
    unsay::cli::main()
}
