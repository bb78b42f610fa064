//! The same bytes give the same lines, however they are split into reads.

use millrace_wire::os::{Line, LineSplitter};
use proptest::prelude::*;

const MAX: usize = 8;

#[derive(Clone, Debug, PartialEq)]
enum Seen {
    Line(Vec<u8>),
    TooLong,
}

fn seen(line: Line<'_>) -> Seen {
    match line {
        Line::Whole(bytes) => Seen::Line(bytes.to_vec()),
        Line::TooLong => Seen::TooLong,
    }
}

fn split(reads: &[&[u8]], line_bytes_max: usize) -> Vec<Seen> {
    let mut splitter = LineSplitter::new(line_bytes_max);
    let mut lines = Vec::new();
    for read in reads {
        let mut rest = *read;
        while let Some(line) = splitter.next(&mut rest) {
            lines.push(seen(line));
        }
        assert!(rest.is_empty());
    }
    lines.extend(splitter.finish().map(seen));
    assert_eq!(splitter.finish(), None, "the end comes once");
    lines
}

/// A simple model of what the splitter must return.
fn expected(bytes: &[u8]) -> Vec<Seen> {
    bytes
        .split(|byte| *byte == b'\n')
        .map(|line| line.strip_suffix(b"\r").unwrap_or(line))
        .filter_map(|line| match line {
            _ if line.len() > MAX => Some(Seen::TooLong),
            _ if line.iter().all(u8::is_ascii_whitespace) => None,
            _ => Some(Seen::Line(line.to_vec())),
        })
        .collect()
}

fn lines(texts: &[&str]) -> Vec<Seen> {
    texts.iter().map(|text| Seen::Line(text.as_bytes().to_vec())).collect()
}

#[test]
fn lines_end_with_lf_or_crlf_and_the_last_one_needs_neither() {
    assert_eq!(split(&[b"a\nb\r\n\n \t\r\nc\rd\r\r\ne"], MAX), lines(&["a", "b", "c\rd\r", "e"]));
    assert_eq!(split(&[b"a", b"b", b"\n", b"c", b"\r"], MAX), lines(&["ab", "c"]));
    assert_eq!(split(&[b"", b"\n", b""], MAX), lines(&[]));
}

#[test]
fn the_bound_counts_neither_lf_nor_one_cr() {
    assert_eq!(split(&[b"12345678\n12345678\r\n12345678"], MAX), lines(&["12345678"; 3]));
    assert_eq!(split(&[b"123456789\n"], MAX), [Seen::TooLong]);
    assert_eq!(split(&[b"12345678\r\r\n"], MAX), [Seen::TooLong]);
    assert_eq!(split(&[b"12345678", b"\r", b"\n"], MAX), lines(&["12345678"]));
    assert_eq!(split(&[b"12345678", b"\r", b"x\nok"], MAX), [Seen::TooLong, Seen::Line(b"ok".to_vec())]);
    let (fits, over) = ("x".repeat(16_384), "x".repeat(16_385));
    let both = format!("{fits}\n{over}\n{fits}\r\n");
    let kept = Seen::Line(fits.into_bytes());
    assert_eq!(split(&[both.as_bytes()], 16_384), [kept.clone(), Seen::TooLong, kept]);
}

#[test]
fn an_endless_line_is_reported_at_once_and_not_kept() {
    let mut splitter = LineSplitter::new(16_384);
    let read = vec![b'x'; 65_536];
    let mut rest = &read[..];
    assert_eq!(splitter.next(&mut rest), Some(Line::TooLong));
    for _ in 0..160 {
        let mut rest = &read[..];
        assert_eq!(splitter.next(&mut rest), None);
    }
    assert!(format!("{splitter:?}").contains("begun: 0"), "{splitter:?}");
    let mut rest = &b"x\nnext\n"[..];
    assert_eq!(splitter.next(&mut rest), Some(Line::Whole(b"next")));
    assert_eq!(splitter.next(&mut rest), None);
    assert_eq!(splitter.finish(), None);
}

#[test]
fn a_line_within_one_read_is_handed_out_where_it_lies() {
    let read = b"first\nsecond\n".to_vec();
    let mut splitter = LineSplitter::new(MAX);
    let mut rest = &read[..];
    let Some(Line::Whole(line)) = splitter.next(&mut rest) else { panic!("a line was to come") };
    assert!(std::ptr::eq(line.as_ptr(), read.as_ptr()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn any_split_gives_the_same_lines(
        bytes in prop::collection::vec(prop::sample::select(b"\n\n\r \txy".to_vec()), 0..60),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let reads: Vec<&[u8]> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
        let each_byte: Vec<&[u8]> = bytes.chunks(1).collect();
        let expected = expected(&bytes);
        prop_assert_eq!(&split(&reads, MAX), &expected);
        prop_assert_eq!(&split(&each_byte, MAX), &expected);
        prop_assert_eq!(&split(&[&bytes], MAX), &expected);
    }
}
