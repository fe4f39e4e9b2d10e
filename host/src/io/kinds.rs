//! Files that are something else than they are taken for: what they are, by how they begin, and what to do about it.

/// Bytes that are looked at.
const START: usize = 4096;
/// Letters of a text that are shown.
const SHOWN: usize = 60;

const UNPACK: &str = "unpack it first";
const CONVERT: &str = "convert it to safetensors first, in Python with `torch.load` and `safetensors.torch.save_file`";

/// How files begin, what they are, and what to do.
const STARTS: [(&[u8], &str, &str); 13] = [
    (
        b"version https://git-lfs",
        "a Git LFS pointer, which stands for a file that is kept elsewhere",
        "fetch the file itself, with `git lfs pull`",
    ),
    (b"GGUF", "a GGUF file", "take the safetensors files of the same model"),
    (
        b"PK\x03\x04",
        "a zip archive, as what PyTorch saves is (.bin, .pt)",
        CONVERT,
    ),
    (b"\x80\x02", PICKLE, CONVERT),
    (b"\x80\x03", PICKLE, CONVERT),
    (b"\x80\x04", PICKLE, CONVERT),
    (b"\x80\x05", PICKLE, CONVERT),
    (b"\x1f\x8b", "compressed with gzip", UNPACK),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd", UNPACK),
    (b"\xfd7zXZ\0", "compressed with xz", UNPACK),
    (b"BZh", "compressed with bzip2", UNPACK),
    (
        b"\x89HDF\r\n\x1a\n",
        "an HDF5 file",
        "save its tensors with a safetensors library",
    ),
    (
        b"\x93NUMPY",
        "a NumPy array",
        "save it with a safetensors library (`safetensors.numpy.save_file`)",
    ),
];
const PICKLE: &str = "a Python pickle, as older files of PyTorch are (.bin, .pt)";

/// What a file is that is neither a safetensors file nor an index, in words that follow "it is".
pub(crate) fn told(file: &[u8]) -> Option<String> {
    let (what, advice) = known(file)?;
    Some(format!("{what}: {advice}"))
}

fn known(file: &[u8]) -> Option<(String, &'static str)> {
    if let Some((_, what, advice)) = STARTS.iter().find(|(start, ..)| file.starts_with(start)) {
        return Some(((*what).to_owned(), advice));
    }
    let start = &file[..file.len().min(START)];
    // The last letter may be cut.
    let text = match std::str::from_utf8(start) {
        Ok(text) => text,
        Err(err) if err.error_len().is_none() => std::str::from_utf8(&start[..err.valid_up_to()]).ok()?,
        Err(_) => return None,
    };
    let text = text.trim_start_matches('\u{feff}').trim_start();
    let is_text = |c: char| !c.is_control() || c.is_whitespace();
    if text.is_empty() || !text.chars().all(is_text) {
        return None;
    }
    Some(match text.as_bytes()[0] {
        b'<' => (
            "a web page, or an error of a web server".to_owned(),
            "download the file itself: a link to a page about it is not enough, and some files need a login",
        ),
        b'{' if file.windows(12).any(|part| part == b"\"weight_map\"") => (
            "the index of a sharded checkpoint".to_owned(),
            "name one of the safetensors files that it lists; to convert or inspect all of them, let the index's name \
             end in .json",
        ),
        b'{' | b'[' => ("a JSON file".to_owned(), "name a safetensors file"),
        _ => {
            let line = text.lines().next().unwrap_or_default();
            let shown: String = line.chars().take(SHOWN).collect();
            (
                format!("a text that begins with `{}`", shown.trim_end()),
                "name a safetensors file; if this was to be one, its download has failed",
            )
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_told_by_how_they_begin() {
        let lfs = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n";
        for (file, words) in [
            (&lfs[..], "a Git LFS pointer, "),
            (b"<!DOCTYPE html>\n<html>", "a web page, "),
            (b"\xef\xbb\xbf\n <HTML>", "a web page, "),
            (b"<?xml version=\"1.0\"?><Error>", "a web page, "),
            (b"\x1f\x8b\x08\0\0\0\0\0", "compressed with gzip: unpack"),
            (b"PK\x03\x04\x14\0", "a zip archive, "),
            (b"\x80\x02\x8a\nl\xfc\x9c\x46", "a Python pickle, "),
            (b"GGUF\x03\0\0\0", "a GGUF file: "),
            (
                br#"{"metadata":{},"weight_map":{"a":"b"}}"#,
                "the index of a sharded checkpoint: ",
            ),
            (b"{\"architectures\": []}", "a JSON file: "),
            (
                "Entry not found: é".as_bytes(),
                "a text that begins with `Entry not found: é`: ",
            ),
        ] {
            let told = told(file).unwrap();
            assert!(told.starts_with(words), "{told}");
        }
        for file in [&b""[..], b"\x10\0\0\0\0\0\0\0{", b"\xff\xff", b"  "] {
            assert_eq!(told(file), None, "{file:?}");
        }
    }
}
