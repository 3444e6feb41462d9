import { join } from 'node:path';
import { expect } from 'vitest';
import { createSigningKey } from '#runtime/crypto/node';
import { startProgram } from '../fixtures/program.js';
import { it } from './fixture.js';

it("each program exits before it does anything under another program's role", async ({
  db,
  home,
}) => {
  const key = join(home, 'key.pem');
  createSigningKey(key);
  const programs = ['engine', 'worker', 'verifier', 'publisher'];
  const ended = await Promise.all(
    programs.map(async (name, i) => {
      const role = `svc_${programs[(i + 1) % programs.length]!}`;
      const program = await startProgram(name, {
        DATABASE_URL: db.urlFor(role),
        ENGINE_PORT: '0',
        AEP_KEY_FILE: key,
        LOG_KEY_FILE: key,
        SNAPSHOT_KEY_FILE: key,
        LOG_ORIGIN: 'log.example.org/test',
        SNAPSHOT_DIR: join(home, 'public'),
      });
      const said = program.stderr.join('\n');
      const refused = new RegExp(`database role ${role} .*connect it as svc_${name}`).test(said);
      return [name, await program.stop(), refused || said];
    }),
  );
  expect(ended).toEqual(programs.map((name) => [name, 1, true]));
});
