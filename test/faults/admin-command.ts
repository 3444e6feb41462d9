import { runAdmin } from '#programs/admin/main';

/** Runs a command of the admin program and returns what it printed. @throws Error when it failed */
export async function adminCommand(url: string, line: string[]): Promise<unknown> {
  const said = { out: '', err: '' };
  const code = await runAdmin(
    [...line, '--json'],
    { out: (text) => void (said.out += text), err: (text) => void (said.err += text) },
    { DATABASE_URL: url },
  );
  if (code !== 0) throw new Error(`admin ${line.join(' ')}: ${said.err}`);
  return JSON.parse(said.out);
}
