//! Files that commands write.

use crate::error::{Error, Result};
use hopper_proj::io::output::{check_apart, write_whole};
use hopper_proj::plan::measured::TABLE_VARIABLE;
use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

pub(crate) fn write(path: &Path, text: &str) -> Result<()> {
    Ok(write_whole(path, text.as_bytes())?)
}

/// Fails where a file could not be written or is an input, before long work for it; harms nothing and leaves nothing.
/// The table that a variable names is an input of every command.
pub(crate) fn check<'a>(path: &Path, inputs: impl IntoIterator<Item = &'a Path>) -> Result<()> {
    let table = std::env::var_os(TABLE_VARIABLE).map(PathBuf::from);
    check_apart(path, inputs)?;
    check_apart(path, table.as_deref())?;
    let checked = match fs::metadata(path) {
        // Opening a pipe would wait for its reader.
        Ok(file) if !file.is_file() && !file.is_dir() => Ok(()),
        Ok(_) => OpenOptions::new().write(true).open(path).map(drop),
        Err(_) => {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            match fs::metadata(folder.unwrap_or(Path::new("."))) {
                Ok(folder) if folder.is_dir() => Ok(()),
                Ok(_) => Err(io::ErrorKind::NotADirectory.into()),
                Err(err) => Err(err),
            }
        }
    };
    checked.map_err(|source| Error::File {
        path: path.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_written_passes_and_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let (old, new) = (folder.path().join("old"), folder.path().join("new"));
        write(&old, "text").unwrap();
        check(&old, []).unwrap();
        check(&new, [&*old, &*new]).unwrap();
        check(Path::new("relative"), []).unwrap();
        check(Path::new("/dev/null"), [Path::new("/dev/null")]).unwrap();
        assert_eq!(fs::read_to_string(&old).unwrap(), "text");
        assert!(!new.exists());
        for bad in [folder.path(), &old.join("below"), &new.join("below")] {
            let message = check(bad, []).unwrap_err().to_string();
            assert!(message.contains(&bad.display().to_string()), "{message}");
        }
    }
}
