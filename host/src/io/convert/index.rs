//! Which files a checkpoint has, and the index of a sharded one.

use super::ConvertError;
use crate::io::checkpoint::Checkpoint as File;
use crate::io::container::Pairs;
use crate::io::output::{Folder, PartFile, Place, check_apart};
use crate::io::{FileError, kinds};
use crate::{Error, Result};
use serde::Serialize;
use serde_json::value::RawValue;
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// The index that a folder is looked for.
const INDEX: &str = "model.safetensors.index.json";
const WEIGHT_MAP: &str = "weight_map";
const METADATA: &str = "metadata";
const TOTAL_SIZE: &str = "total_size";

/// The new names of each tensor that a file had.
pub(super) type Renamed = HashMap<String, Vec<String>>;

/// The files of a checkpoint, all of them read and fit for each other.
pub(super) struct Checkpoint {
    pub(super) files: Vec<File>,
    /// The index, where the checkpoint has one.
    pub(super) index: Option<Index>,
}

impl Checkpoint {
    /// A file, an index, or a folder with one.
    pub(super) fn open(input: &Path) -> Result<Self> {
        let index = if input.is_dir() {
            let index = input.join(INDEX);
            if !index.is_file() {
                return Err(ConvertError::NoIndex { path: input.to_owned() }.into());
            }
            Some(Index::read(index)?)
        } else if input.extension() == Some(OsStr::new("json")) {
            Some(Index::read(input.to_owned())?)
        } else {
            None
        };
        let paths = match &index {
            Some(index) => index.files()?,
            None => vec![input.to_owned()],
        };
        let files: Vec<File> = paths.into_iter().map(File::open).collect::<Result<_>>()?;
        files.iter().try_for_each(|file| file.matrices().map(drop))?;
        if let Some(index) = &index {
            index.check_tensors(&files)?;
        }
        Ok(Checkpoint { files, index })
    }

    /// Bytes of the files.
    pub(super) fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.len() as u64).sum()
    }

    /// Its files, and its index last.
    pub(super) fn paths(&self) -> impl Iterator<Item = &Path> {
        let index = self.index.iter().map(|index| index.path.as_path());
        self.files.iter().map(File::path).chain(index)
    }

    /// Where in a folder one of its files, or its index, has its counterpart.
    pub(super) fn counterpart(folder: &Path, path: &Path) -> PathBuf {
        folder.join(path.file_name().unwrap_or_default())
    }

    /// Makes sure that the output can be written and takes the place of no input.
    pub(super) fn output_folder(&self, output: &Path) -> Result<Option<Folder>> {
        let refused = |given, needed| {
            ConvertError::Output {
                path: output.to_owned(),
                given,
                needed,
            }
            .into()
        };
        match &self.index {
            None if output.is_dir() => Err(refused("a folder", "the name of a file, as the input is one")),
            None if Place::of(output)? == Place::WrittenTo => Err(refused("no regular file", "one, or not exist")),
            None => check_apart(output, self.paths()).map(|()| None),
            Some(_) if output.exists() && !output.is_dir() => {
                Err(refused("no folder", "one, as the input is a sharded checkpoint"))
            }
            Some(index) => {
                let same =
                    |folder: &Path| matches!((folder.canonicalize(), output.canonicalize()), (Ok(a), Ok(b)) if a == b);
                if let Some(input) = index.folder().filter(|folder| same(folder)) {
                    return Err(FileError::OutputIsInput {
                        output: output.to_owned(),
                        input: input.to_owned(),
                    }
                    .into());
                }
                for path in self.paths() {
                    let path = Self::counterpart(output, path);
                    check_apart(&path, self.paths())?;
                    if Place::of(&path)? == Place::WrittenTo {
                        let (given, needed) = ("no regular file", "one, or not exist");
                        return Err(ConvertError::Output { path, given, needed }.into());
                    }
                }
                Ok(Some(Folder::create(output)?))
            }
        }
    }
}

/// The index of a sharded checkpoint, with all of its keys in their order.
#[derive(Debug)]
pub(super) struct Index {
    path: PathBuf,
    /// The other keys, and how many of them come ahead of the weight map.
    keys: Vec<(String, Value)>,
    ahead: usize,
    /// Which file has which tensor.
    weight_map: Vec<(String, String)>,
    ends_line: bool,
}

/// The value of a key.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Value {
    WeightMap(Pairs<String>),
    /// Free-form, but for the total size.
    Metadata(Pairs<Box<RawValue>>),
    Other(Box<RawValue>),
}

impl Index {
    fn read(path: PathBuf) -> Result<Self> {
        let bytes = std::fs::read(&path).map_err(|source| FileError::Io {
            verb: "read",
            path: path.clone(),
            source,
        })?;
        let parsed = match std::str::from_utf8(&bytes) {
            Ok(text) => Self::parse(&path, text),
            Err(err) => Err(err.to_string()),
        };
        parsed.map_err(|reason| {
            let is_json = serde_json::from_slice::<&RawValue>(&bytes).is_ok();
            let told = Some(&*bytes).filter(|_| !is_json).and_then(kinds::told);
            let reason = told.map_or(reason, |told| format!("it is {told}"));
            ConvertError::Index { path, reason }.into()
        })
    }

    fn parse(path: &Path, text: &str) -> Result<Self, String> {
        let Pairs::<Box<RawValue>>(mut keys) = serde_json::from_str(text).map_err(|err| err.to_string())?;
        if let Some(key) = twice(&keys) {
            return Err(format!("key `{key}` is there twice"));
        }
        let ahead = keys.iter().position(|(key, _)| key == WEIGHT_MAP);
        let ahead = ahead.ok_or_else(|| format!("it has no `{WEIGHT_MAP}`"))?;
        let (_, map) = keys.remove(ahead);
        let Pairs(weight_map) = serde_json::from_str(map.get()).map_err(|err| format!("`{WEIGHT_MAP}`: {err}"))?;
        check(&weight_map)?;
        let value = |(key, raw): (String, Box<RawValue>)| {
            let metadata = serde_json::from_str(raw.get()).ok().filter(|_| key == METADATA);
            (key, metadata.map_or(Value::Other(raw), Value::Metadata))
        };
        Ok(Index {
            path: path.to_owned(),
            keys: keys.into_iter().map(value).collect(),
            ahead,
            weight_map,
            ends_line: text.ends_with('\n'),
        })
    }

    fn folder(&self) -> Option<&Path> {
        match self.path.parent() {
            Some(folder) if folder.as_os_str().is_empty() => Some(Path::new(".")),
            folder => folder,
        }
    }

    /// The files, in the order in which the index comes to them.
    fn files(&self) -> Result<Vec<PathBuf>> {
        let mut seen = HashSet::new();
        let names = self.weight_map.iter().map(|(_, file)| file);
        let names: Vec<&String> = names.filter(|file| seen.insert(*file)).collect();
        let path = |name: &&String| self.path.with_file_name(name);
        let missing: Vec<&&String> = names.iter().filter(|name| !path(name).exists()).collect();
        if let Some(first) = missing.first() {
            let others = others(missing.len());
            return Err(self.wrong(format!(
                "its file `{first}` is not there{others}: fetch what is missing into the folder of the index"
            )));
        }
        Ok(names.iter().map(path).collect())
    }

    /// Makes sure that every tensor is where the index says. A file may have more tensors, which readers of the index
    /// do not see.
    fn check_tensors(&self, files: &[File]) -> Result<()> {
        let named = |file: &File| -> HashSet<String> {
            let tensors = file.header().tensors.iter();
            tensors.map(|tensor| tensor.name.clone()).collect()
        };
        let tensors: HashMap<&OsStr, HashSet<String>> = files
            .iter()
            .filter_map(|file| Some((file.path().file_name()?, named(file))))
            .collect();
        let is_missing = |(tensor, file): &&(String, String)| {
            let there = tensors.get(OsStr::new(file));
            there.is_none_or(|there| !there.contains(tensor))
        };
        let missing: Vec<&(String, String)> = self.weight_map.iter().filter(is_missing).collect();
        let Some((tensor, file)) = missing.first() else {
            return Ok(());
        };
        let elsewhere = self.weight_map.iter().map(|(_, file)| file);
        let elsewhere = elsewhere
            .filter(|file| {
                tensors
                    .get(OsStr::new(file))
                    .is_some_and(|there| there.contains(tensor))
            })
            .map(|file| format!(" but in `{file}`"))
            .next();
        let (elsewhere, others) = (elsewhere.unwrap_or_default(), others(missing.len()));
        Err(self.wrong(format!(
            "tensor `{tensor}` is not in `{file}`{elsewhere}{others}: fetch the index and its files anew, all of one \
             revision"
        )))
    }

    fn wrong(&self, reason: String) -> Error {
        ConvertError::Index {
            path: self.path.clone(),
            reason,
        }
        .into()
    }

    /// Follows a file whose tensors have new names and whose data has another size.
    pub(super) fn follow(&mut self, file: &Path, renamed: &Renamed, data: (u64, u64)) -> Result<()> {
        let mut map = Vec::with_capacity(self.weight_map.len());
        for (name, shard) in &self.weight_map {
            if file.file_name() != Some(OsStr::new(shard)) {
                map.push((name.clone(), shard.clone()));
                continue;
            }
            let names = renamed
                .get(name)
                .ok_or_else(|| self.wrong(format!("tensor `{name}` is not in `{shard}`")))?;
            map.extend(names.iter().map(|name| (name.clone(), shard.clone())));
        }
        if let Some(taken) = twice(&map) {
            let becomes = renamed.iter().find(|(_, names)| names.iter().any(|name| name == taken));
            return Err(ConvertError::NameTaken {
                path: self.path.clone(),
                name: becomes.map_or(taken, |(name, _)| name).to_owned(),
                taken: taken.to_owned(),
            }
            .into());
        }
        self.weight_map = map;
        self.resize(data);
        Ok(())
    }

    /// Changes the total size by what the data of a file has gained or lost. A total that is no whole number stays as
    /// it is.
    fn resize(&mut self, (before, after): (u64, u64)) {
        for (_, value) in &mut self.keys {
            let Value::Metadata(Pairs(pairs)) = value else { continue };
            for (_, total) in pairs.iter_mut().filter(|(key, _)| key == TOTAL_SIZE) {
                if let Ok(size) = serde_json::from_str::<i128>(total.get())
                    && let Ok(size) = RawValue::from_string((size + i128::from(after) - i128::from(before)).to_string())
                {
                    *total = size;
                }
            }
        }
    }

    /// Writes the index into a folder, under the name that it had.
    pub(super) fn write(mut self, folder: &Path) -> Result<PartFile> {
        let target = folder.join(self.path.file_name().unwrap_or(OsStr::new(INDEX)));
        let map = Value::WeightMap(Pairs(self.weight_map));
        self.keys.insert(self.ahead, (WEIGHT_MAP.to_owned(), map));
        let mut text = serde_json::to_string_pretty(&Pairs(self.keys)).map_err(|err| ConvertError::Index {
            path: self.path,
            reason: err.to_string(),
        })?;
        text.extend(self.ends_line.then_some('\n'));
        let mut file = PartFile::create(&target)?;
        file.write(0, text.as_bytes())?;
        file.finish(text.len() as u64)?;
        Ok(file)
    }
}

fn check(weight_map: &[(String, String)]) -> Result<(), String> {
    if let Some(name) = twice(weight_map) {
        return Err(format!("tensor `{name}` is there twice"));
    }
    // Output files are named after these: none may lead elsewhere.
    let elsewhere = |(_, file): &&(String, String)| Path::new(file).file_name() != Some(OsStr::new(file));
    match weight_map.iter().find(elsewhere) {
        Some((tensor, file)) => Err(format!("tensor `{tensor}` is in `{file}`, which is no plain file name")),
        None => Ok(()),
    }
}

/// What is to be said where the first of so many is named.
fn others(all: usize) -> String {
    match all {
        0 | 1 => String::new(),
        _ => format!(" (nor are {} more)", all - 1),
    }
}

/// A key that occurs more than once.
fn twice<V>(pairs: &[(String, V)]) -> Option<&str> {
    let mut seen = HashSet::new();
    pairs.iter().map(|(key, _)| key.as_str()).find(|key| !seen.insert(*key))
}
