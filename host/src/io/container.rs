//! The safetensors container, with everything in the order in which a file has it: a converted file differs from its
//! original only where it must. The crate of that name checks what is read; it keeps neither the order of the header
//! nor writes piece by piece.

use crate::io::{FileError, kinds};
use safetensors::SafeTensors;
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::fs::File;
use std::marker::PhantomData;
use std::ops::Range;
use std::path::Path;

/// Bytes of the length ahead of the header, and what the data's start is aligned to.
const WORD: usize = 8;
const METADATA: &str = "__metadata__";
/// Bytes that a header may have: readers of safetensors open no file with more.
pub(crate) const MOST_HEADER: u64 = 100_000_000;

/// What is to be done about a file that ends too early.
const WHOLE: &str = "it must be a complete file: fetch or write it again";

/// Whether a file begins like one of this format: with the length of a header, and a header.
fn looks_right(file: &[u8]) -> bool {
    let length = file.first_chunk::<WORD>().map(|length| u64::from_le_bytes(*length));
    length.is_some_and(|length| length <= MOST_HEADER) && matches!(file.get(WORD), None | Some(b'{'))
}

/// Maps a file into memory.
pub(crate) fn map(path: &Path) -> Result<memmap2::Mmap, FileError> {
    let failed = |verb| {
        move |source| FileError::Io {
            verb,
            path: path.to_owned(),
            source,
        }
    };
    // Opening a pipe would wait for its writer.
    let there = path.metadata().map_err(failed("open"))?;
    if !there.is_file() {
        return Err(FileError::NotRegular {
            path: path.to_owned(),
            what: if there.is_dir() {
                "a folder"
            } else {
                "a pipe or a device"
            },
        });
    }
    let file = File::open(path).map_err(failed("open"))?;
    // SAFETY: the map is read-only, and its contents are only ever read as bytes, any of which is valid. A program that
    // truncates the file meanwhile can end this process; files of weights are not edited in place.
    unsafe { memmap2::Mmap::map(&file) }.map_err(failed("map"))
}

/// The header of a safetensors file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Header {
    /// The free-form metadata and the number of tensors listed ahead of it, where there is any.
    pub(crate) metadata: Option<(usize, Vec<(String, String)>)>,
    /// The tensors, as listed.
    pub(crate) tensors: Vec<Tensor>,
}

/// A tensor as the header lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tensor {
    pub(crate) name: String,
    /// The element type, as spelled.
    pub(crate) dtype: String,
    pub(crate) shape: Vec<usize>,
    /// Its bytes of the data.
    pub(crate) range: Range<usize>,
}

impl Tensor {
    /// The tensor as a key of a header and its value.
    pub(crate) fn to_json(&self) -> String {
        let Range { start, end } = self.range;
        let (name, dtype) = (quoted(&self.name), quoted(&self.dtype));
        let shape: Vec<String> = self.shape.iter().map(usize::to_string).collect();
        let shape = shape.join(",");
        format!(r#"{name}:{{"dtype":{dtype},"shape":[{shape}],"data_offsets":[{start},{end}]}}"#)
    }
}

impl Header {
    /// Reads and checks a file: the header, and the data, all of which belongs to tensors.
    pub(crate) fn read(file: &[u8]) -> Result<(Self, &[u8]), String> {
        if let Some(told) = Some(file).filter(|file| !looks_right(file)).and_then(kinds::told) {
            return Err(format!("it is {told}"));
        }
        let (length, rest) = file.split_first_chunk::<WORD>().ok_or_else(|| match file.len() {
            0 => format!("it is empty; {WHOLE}"),
            bytes => format!("it has {bytes} bytes, fewer than the length of its header; {WHOLE}"),
        })?;
        let length = u64::from_le_bytes(*length);
        if length > MOST_HEADER {
            return Err(format!(
                "its first eight bytes are no length of a header, which is {MOST_HEADER} at most: it is another kind of \
                 file, or damaged"
            ));
        }
        let (json, data) = usize::try_from(length)
            .ok()
            .and_then(|length| rest.split_at_checked(length))
            .ok_or_else(|| {
                format!(
                    "its header has {length} bytes, of which {} are there; {WHOLE}",
                    rest.len()
                )
            })?;
        let header: Header = serde_json::from_slice(json).map_err(|err| format!("its header is wrong: {err}"))?;
        let mut names = HashSet::new();
        for tensor in &header.tensors {
            if !names.insert(&tensor.name) {
                return Err(format!("it has two tensors `{}`", tensor.name));
            }
            let Range { start, end } = tensor.range;
            if start > end || end > data.len() {
                let hint = if start > end {
                    String::new()
                } else {
                    format!("; {WHOLE}")
                };
                return Err(format!(
                    "tensor `{}` has bytes {start}..{end} of {} bytes of data{hint}",
                    tensor.name,
                    data.len()
                ));
            }
        }
        let end = header.tensors.iter().map(|tensor| tensor.range.end).max();
        let more = data.len() - end.unwrap_or(0);
        if more > 0 {
            return Err(format!("its data has {more} bytes more than its tensors have"));
        }
        // Types, shapes against sizes, holes and overlaps.
        SafeTensors::read_metadata(file).map_err(|err| err.to_string())?;
        Ok((header, data))
    }

    /// The tensors by where their data lies, as indices.
    pub(crate) fn data_order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.tensors.len()).collect();
        order.sort_by_key(|&i| (self.tensors[i].range.start, self.tensors[i].range.end));
        order
    }

    /// The bytes ahead of the data.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut keys = Vec::new();
        for (i, tensor) in self.tensors.iter().enumerate() {
            keys.extend(self.metadata_key(i));
            keys.push(tensor.to_json());
        }
        keys.extend(self.metadata_key(self.tensors.len()));
        let json = format!("{{{}}}", keys.join(","));
        let bytes = (WORD + json.len()).next_multiple_of(WORD);
        let mut out = Vec::with_capacity(bytes);
        out.extend_from_slice(&((bytes - WORD) as u64).to_le_bytes());
        out.extend_from_slice(json.as_bytes());
        out.resize(bytes, b' ');
        out
    }

    /// Bytes of the header by the bytes ahead of the data, which are those and the length of them.
    pub(crate) fn length(ahead: &[u8]) -> u64 {
        ahead.len().saturating_sub(WORD) as u64
    }

    /// The metadata as a key of the header, if it stands ahead of tensor `at`.
    fn metadata_key(&self, at: usize) -> Option<String> {
        let (_, pairs) = self.metadata.as_ref().filter(|(place, _)| *place == at)?;
        let pairs: Vec<String> = pairs
            .iter()
            .map(|(key, value)| format!("{}:{}", quoted(key), quoted(value)))
            .collect();
        Some(format!("\"{METADATA}\":{{{}}}", pairs.join(",")))
    }
}

/// A safetensors file in memory, whose tensors are found by their names.
#[derive(Debug, Clone)]
pub(crate) struct Tensors<'a> {
    header: Cow<'a, Header>,
    data: &'a [u8],
    places: HashMap<String, usize>,
}

impl<'a> Tensors<'a> {
    /// Reads and checks a file.
    pub(crate) fn read(file: &'a [u8]) -> Result<Self, String> {
        let (header, data) = Header::read(file)?;
        Ok(Self::new(Cow::Owned(header), data))
    }

    /// A file that was read: the header fits the data.
    pub(crate) fn new(header: Cow<'a, Header>, data: &'a [u8]) -> Self {
        let names = header.tensors.iter().map(|tensor| tensor.name.clone());
        let places = names.zip(0..).collect();
        Tensors { header, data, places }
    }

    pub(crate) fn header(&self) -> &Header {
        &self.header
    }

    pub(crate) fn data(&self) -> &'a [u8] {
        self.data
    }

    /// Where in the header a tensor is.
    pub(crate) fn place(&self, name: &str) -> Option<usize> {
        self.places.get(name).copied()
    }

    /// The bytes of the tensor at a place in the header.
    pub(crate) fn bytes(&self, place: usize) -> &'a [u8] {
        &self.data[self.header.tensors[place].range.clone()]
    }
}

/// A JSON string.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Info {
            dtype: String,
            shape: Vec<usize>,
            data_offsets: (usize, usize),
        }
        struct Keys;
        impl<'de> Visitor<'de> for Keys {
            type Value = Header;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object with a key per tensor")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Header, A::Error> {
                let mut header = Header::default();
                while let Some(name) = map.next_key::<String>()? {
                    if name == METADATA {
                        let pairs = map.next_value::<Option<Pairs<String>>>()?;
                        header.metadata = pairs.map(|pairs| (header.tensors.len(), pairs.0));
                    } else {
                        let Info {
                            dtype,
                            shape,
                            data_offsets: (start, end),
                        } = map.next_value()?;
                        header.tensors.push(Tensor {
                            name,
                            dtype,
                            shape,
                            range: start..end,
                        });
                    }
                }
                Ok(header)
            }
        }
        deserializer.deserialize_map(Keys)
    }
}

/// A JSON object as it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pairs<V>(pub(crate) Vec<(String, V)>);

impl<'de, V: Deserialize<'de>> Deserialize<'de> for Pairs<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Keys<V>(PhantomData<V>);
        impl<'de, V: Deserialize<'de>> Visitor<'de> for Keys<V> {
            type Value = Pairs<V>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs<V>, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }
        deserializer.deserialize_map(Keys(PhantomData))
    }
}

impl<V: serde::Serialize> serde::Serialize for Pairs<V> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(key, value)| (key, value)))
    }
}

/// Files for tests.
#[cfg(test)]
pub(crate) mod testing {
    use super::{Header, Tensor};

    /// A file of tensors, `(name, type, shape, bytes)`, in this order; its metadata stands ahead of them.
    pub(crate) fn file(metadata: Option<&[(&str, &str)]>, tensors: &[(&str, &str, &[usize], &[u8])]) -> Vec<u8> {
        let pairs = |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        let mut next = 0;
        let place = |&(name, dtype, shape, bytes): &(&str, &str, &[usize], &[u8])| {
            next += bytes.len();
            Tensor {
                name: name.to_owned(),
                dtype: dtype.to_owned(),
                shape: shape.to_vec(),
                range: next - bytes.len()..next,
            }
        };
        let header = Header {
            metadata: metadata.map(|metadata| (0, pairs(metadata))),
            tensors: tensors.iter().map(place).collect(),
        };
        let data = tensors.iter().flat_map(|(_, _, _, bytes)| bytes.iter().copied());
        header.to_bytes().into_iter().chain(data).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(json: &str, data: usize) -> Vec<u8> {
        let mut bytes = (json.len() as u64).to_le_bytes().to_vec();
        bytes.extend_from_slice(json.as_bytes());
        bytes.resize(bytes.len() + data, 7);
        bytes
    }

    #[test]
    fn a_header_comes_back_as_it_was() {
        let json = concat!(
            r#"{"b \"é\"":{"dtype":"I8","shape":[2,1],"data_offsets":[3,5]},"__metadata__":{"z":"1","a":"{\"x\":2}"},"#,
            r#""a":{"dtype":"U8","shape":[],"data_offsets":[2,3]},"c":{"dtype":"F32","shape":[0],"data_offsets":[2,2]},"#,
            r#""d":{"dtype":"BF16","shape":[1],"data_offsets":[0,2]}}"#
        );
        let bytes = file(
            &format!("{json}{}", " ".repeat(json.len().next_multiple_of(8) - json.len())),
            5,
        );
        let ahead = bytes.len() - 5;
        let (header, data) = Header::read(&bytes).unwrap();
        assert_eq!(data, [7; 5]);
        assert_eq!(header.metadata.as_ref().unwrap().0, 1);
        assert_eq!(header.data_order(), [3, 2, 1, 0]);
        assert_eq!(header.to_bytes(), bytes[..ahead]);
    }

    #[test]
    fn an_empty_file_has_an_empty_header() {
        let header = Header::default();
        assert_eq!(header.to_bytes(), *b"\x08\0\0\0\0\0\0\0{}      ");
        assert_eq!(Header::read(&header.to_bytes()).unwrap().0, header);
    }

    #[test]
    fn what_is_wrong_is_told() {
        let one = |offsets: &str| format!(r#"{{"a":{{"dtype":"U8","shape":[2],"data_offsets":{offsets}}}}}"#);
        let cases = [
            (vec![], "empty; it must be a complete file"),
            (vec![0; 7], "has 7 bytes, fewer"),
            (vec![0xff; 8], "no length of a header, which is 100000000 at most"),
            (
                vec![2, 0, 0, 0, 0, 0, 0, 0, b'{'],
                "2 bytes, of which 1 are there; it must be a complete file",
            ),
            (
                b"version https://git-lfs.github.com/spec/v1\n".to_vec(),
                "it is a git lfs pointer",
            ),
            // As a length these are few, but no header follows.
            (b"\x1f\x8b\x08\0\0\0\0\0\0\x03".to_vec(), "compressed with gzip"),
            (file("[]", 0), "header is wrong"),
            (
                file(&one("[0,3]"), 2),
                "bytes 0..3 of 2 bytes of data; it must be a complete file",
            ),
            (file(&one("[2,0]"), 2), "bytes 2..0 of 2"),
            (
                file(&one("[0,18446744073709551615]"), 2),
                "of 2 bytes of data; it must be a complete file",
            ),
            (file(&one("[0,1]"), 1), "shape"),
            (file(&one("[0,2]"), 3), "1 bytes more than its tensors have"),
            (
                file(
                    r#"{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}"#,
                    1,
                ),
                "two tensors `a`",
            ),
        ];
        for (bytes, reason) in cases {
            let err = Header::read(&bytes).unwrap_err();
            assert!(err.to_lowercase().contains(reason), "{err} / {reason}");
            let is_cut = reason.contains("fewer") || reason.contains("complete file");
            assert_eq!(err.contains("complete file"), is_cut, "{err}");
        }
        // A header of as many bytes as the start of a pickle would be.
        let mut long = file("{}", 0);
        long[..3].copy_from_slice(&[0x80, 0x02, 0x01]);
        let err = Header::read(&long).unwrap_err();
        assert!(err.contains("66176 bytes, of which 2 are there"), "{err}");
    }
}
