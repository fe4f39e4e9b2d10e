//! Files that commands write.

use crate::error::{Error, Result};
use std::fs::{self, OpenOptions};
use std::io;
use std::path::Path;

pub(crate) fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).map_err(|source| failed(path, source))
}

/// Fails where a file could not be written, before long work for it; harms nothing and leaves nothing.
pub(crate) fn check(path: &Path) -> Result<()> {
    let checked = if path.exists() {
        OpenOptions::new().write(true).open(path).map(drop)
    } else {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        match fs::metadata(folder.unwrap_or(Path::new("."))) {
            Ok(folder) if folder.is_dir() => Ok(()),
            Ok(_) => Err(io::ErrorKind::NotADirectory.into()),
            Err(err) => Err(err),
        }
    };
    checked.map_err(|source| failed(path, source))
}

fn failed(path: &Path, source: io::Error) -> Error {
    Error::File {
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_written_passes_and_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let (old, new) = (folder.path().join("old"), folder.path().join("new"));
        write(&old, "text").unwrap();
        check(&old).unwrap();
        check(&new).unwrap();
        check(Path::new("relative")).unwrap();
        assert_eq!(fs::read_to_string(&old).unwrap(), "text");
        assert!(!new.exists());
        for bad in [folder.path(), &old.join("below"), &new.join("below")] {
            let message = check(bad).unwrap_err().to_string();
            assert!(message.contains(&bad.display().to_string()), "{message}");
        }
    }
}
