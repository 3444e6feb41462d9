/**
 * Path segments that every file system and every server reads alike: letters, digits and a few signs.
 * Excludes `%` (a server may decode), `\`, `:` and `$` (Windows, URLs, variables), quotes (a server may
 * strip them), and invisible characters.
 */
const SEGMENT = /^[\p{L}\p{M}\p{N}._@+=,;()[\]{}#&!~^ -]+$/u;
const INVISIBLE = /\p{Default_Ignorable_Code_Point}/u;

/**
 * The absolute form of a POSIX path without `.` and empty segments. Relative paths need a root.
 * Undefined for a path that a server could read as another path, such as every path with `..`, which
 * leads elsewhere after a symbolic link. The caller then states no fact.
 */
export function normalPath(path: string, root?: string): string | undefined {
  // NFKC turns look-alikes such as U+FF0F and U+2024 into `/` and `.`.
  if (path !== path.normalize('NFKC') || INVISIBLE.test(path)) return undefined;
  if (path.startsWith('~') || (root === undefined && !path.startsWith('/'))) return undefined;
  const names: string[] = path.startsWith('/') ? [] : (root ?? '').split('/').slice(1);
  for (const name of path.split('/')) {
    if (name === '' || name === '.') continue;
    // Windows drops dots and spaces at the end, and some servers trim.
    if (!SEGMENT.test(name) || /^ |[ .]$/.test(name)) return undefined;
    else names.push(name);
  }
  return `/${names.join('/')}`;
}
