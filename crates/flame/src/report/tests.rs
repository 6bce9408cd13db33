use super::*;
use crate::profile::tests::named;
use crate::recording::tests::example;
use lepus_probe::Scratch;

fn with_report(look: impl FnOnce(&Report<'_>)) {
    let (recording, mut profile) = (example(), named());
    profile.nameless = vec!["libx.so".to_owned()];
    let report = Report {
        recording: &recording,
        profile: &profile,
        command: "lepus profile --seconds 2",
        kernel: Err("No perf here."),
    };
    look(&report);
}

#[test]
fn the_terminal_gets_phases_and_functions() {
    with_report(|report| {
        let text = report.text();
        let line = |start: &str| {
            let line = text.lines().find(|line| line.starts_with(start));
            line.unwrap_or_else(|| panic!("no line {start}: {text}"))
        };
        let words: Vec<&str> = line("shard 0").split_whitespace().collect();
        // One second of CPU time in two; 80 of 100 ticks in handle, 20 in write.
        assert_eq!(words[2..4], ["50.0", "%"]);
        assert_eq!(
            words[4..],
            "0.0 % 80.0 % 0.0 % 0.0 % 20.0 % 0.0 % 0.0 %".split(' ').collect::<Vec<_>>()
        );
        assert!(line("files").contains("50.0 %"));
        assert!(text.contains(" 50.0 %       50.0 %  [kernel: write]\n"), "{text}");
        assert!(text.contains("  0.0 %       50.0 %  lepus_broker::publish::publish\n"), "{text}");
    });
}

#[test]
fn what_perf_saw_is_a_picture_of_its_own() {
    with_report(|report| {
        let tree = crate::kernel_tree("shard-0\n ffffffff81000000 do_syscall_64\n\n");
        let report = Report { kernel: Ok(&tree), ..*report };
        assert!(
            report.unseen()[0].contains("flame-kernel.svg has what perf saw inside: 1 samples")
        );
        let scratch = Scratch::new("flame-k");
        let directory = scratch.path().to_owned();
        report.write(&directory).unwrap();
        let svg = std::fs::read_to_string(directory.join("flame-kernel.svg")).unwrap();
        assert!(svg.contains("do_syscall_64: 100.00 %"), "{svg}");
    });
}

#[test]
fn what_was_not_seen_is_said() {
    with_report(|report| {
        let unseen = report.unseen().join("\n");
        for part in [
            "50.0 % of the samples fell into system calls",
            "No perf here.",
            "Time asleep",
            "management 0.2 %",
            "150 interruptions stand for 160 samples",
            "160 samples where the CPU time used would give 600",
            "1 samples were dropped",
            "2 samples have stacks",
            "functions in libx.so",
        ] {
            assert!(unseen.contains(part), "{part} is missing: {unseen}");
        }
        assert!(!unseen.contains("too many different stacks"));
    });
}

#[test]
fn the_directory_holds_pictures_of_the_sum_and_of_each_shard() {
    with_report(|report| {
        let scratch = Scratch::new("flame");
        let directory = scratch.path().to_owned();
        let names = report.write(&directory).unwrap();
        for name in [
            "flame-sum.svg",
            "own-sum.svg",
            "top-sum.svg",
            "flame-shard-0.svg",
            "own-shard-1.svg",
            "report.html",
            "profile.json",
            "stacks.folded",
            "README.txt",
        ] {
            assert!(names.iter().any(|other| other == name), "{names:?}");
            assert!(std::fs::metadata(directory.join(name)).unwrap().len() > 100);
        }
        let json = std::fs::read_to_string(directory.join("profile.json")).unwrap();
        let json: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json["scopes"][1]["scope"], "shard-0");
        assert_eq!(json["scopes"][1]["phases"]["handle"], 80);
        let folded = std::fs::read_to_string(directory.join("stacks.folded")).unwrap();
        assert!(folded.contains("shard 1;[poll];__libc_write;[kernel: write] 50\n"), "{folded}");
    });
}
