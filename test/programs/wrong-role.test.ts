import { expect, it } from 'vitest';
import { testFolder } from '../fixtures/test-folder.js';
import { programsOn, testRegistry } from './world.js';

const { db } = await testRegistry();
const { start } = programsOn(db, await testFolder());

it("each program > exits before any other action when it is connected as another program's role", async () => {
  const programs = ['engine', 'worker', 'verifier', 'publisher'];
  const ended = await Promise.all(
    programs.map(async (name, i) => {
      const role = `svc_${programs[(i + 1) % programs.length]!}`;
      const program = await start(name, { DATABASE_URL: db.urlFor(role) });
      const said = program.stderr.join('\n');
      const refused = new RegExp(`database role ${role} .*connect it as svc_${name}`).test(said);
      return [name, await program.stop(), refused || said];
    }),
  );
  expect(ended).toEqual(programs.map((name) => [name, 1, true]));
});
