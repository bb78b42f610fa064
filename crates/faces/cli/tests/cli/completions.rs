//! `millrace completions`.

use crate::run::run;

#[test]
fn every_shell_gets_a_script_that_knows_the_commands() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = run(&["completions", shell]).ok();
        for word in ["millrace", "serve", "topics", "ack-timeout-ms"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
        assert!(!script.contains("capability-guard"), "{shell}: nobody calls it by hand");
    }
}
