import { readFileSync } from 'node:fs';
import * as z from 'zod';

/** What a program logs in with, as its own `DATABASE_URL_FILE` has it. */
export interface RoleLogin {
  role: string;
  password: string;
}

function loginIn(file: string): RoleLogin | string {
  let content;
  try {
    content = readFileSync(file, 'utf8').trim();
  } catch (cause) {
    return `cannot be read (${(cause as NodeJS.ErrnoException).code ?? 'unknown'})`;
  }
  const url = /^postgres(ql)?:/.test(content) && URL.canParse(content) ? new URL(content) : null;
  if (url === null || url.username === '' || url.password === '') {
    return 'does not hold a URL like postgres://role:password@host:5432/database';
  }
  return { role: decodeURIComponent(url.username), password: decodeURIComponent(url.password) };
}

/** Files of programs' database URLs, separated by commas; none when unset. */
export const roleLogins = z
  .string()
  .default('')
  .transform((list, context) =>
    list
      .split(',')
      .map((file) => file.trim())
      .filter((file) => file !== '')
      .flatMap((file) => {
        const found = loginIn(file);
        if (typeof found !== 'string') return [found];
        context.addIssue({ code: 'custom', message: `names ${file}, which ${found}` });
        return [];
      }),
  );
