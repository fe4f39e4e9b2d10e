//! A file that appears whole or not at all.

use crate::{Error, Result};
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// A file under another name, next to its place. It is removed unless it is committed; a program that is killed leaves it, under a
/// name that ends in `.part`.
#[derive(Debug)]
pub(super) struct PartFile {
    part: PathBuf,
    target: PathBuf,
    file: Option<File>,
    committed: bool,
}

impl PartFile {
    pub(super) fn create(target: &Path) -> Result<Self> {
        let failed = |source| Error::Io {
            verb: "create",
            path: target.to_owned(),
            source,
        };
        let mut name = target
            .file_name()
            .ok_or_else(|| failed(std::io::ErrorKind::InvalidInput.into()))?
            .to_owned();
        name.push(format!(".{}.part", std::process::id()));
        let part = target.with_file_name(name);
        let file = File::create(&part).map_err(failed)?;
        Ok(PartFile {
            part,
            target: target.to_owned(),
            file: Some(file),
            committed: false,
        })
    }

    /// Writes bytes from position `at` on.
    pub(super) fn write(&mut self, at: u64, bytes: &[u8]) -> Result<()> {
        self.with_file(|mut file| file.seek(SeekFrom::Start(at)).and_then(|_| file.write_all(bytes)))
    }

    /// Ends writing: everything is on the disk, and no file is open any more. The file may have been written with gaps, or not
    /// up to its end: it has `bytes` bytes from now on.
    pub(super) fn finish(&mut self, bytes: u64) -> Result<()> {
        self.with_file(|file| file.set_len(bytes).and_then(|()| file.sync_all()))?;
        self.file = None;
        Ok(())
    }

    /// Gives the file its name.
    pub(super) fn commit(mut self) -> Result<()> {
        std::fs::rename(&self.part, &self.target).map_err(|source| self.failed(source))?;
        self.committed = true;
        Ok(())
    }

    fn with_file(&self, act: impl FnOnce(&File) -> std::io::Result<()>) -> Result<()> {
        self.file
            .as_ref()
            .map_or(Ok(()), act)
            .map_err(|source| self.failed(source))
    }

    fn failed(&self, source: std::io::Error) -> Error {
        Error::Io {
            verb: "write",
            path: self.target.clone(),
            source,
        }
    }
}

impl Drop for PartFile {
    fn drop(&mut self) {
        if !self.committed {
            // Whatever ended the work early is what is reported; a leftover that cannot be removed adds nothing to it.
            std::fs::remove_file(&self.part).ok();
        }
    }
}
