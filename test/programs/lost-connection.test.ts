import { expect, it } from 'vitest';
import { TcpProxy } from '../fixtures/tcp-proxy.js';
import { testFolder } from '../fixtures/test-folder.js';
import { programsOn, testRegistry } from './world.js';

const { db } = await testRegistry();
const { start } = programsOn(db, await testFolder());

it.each(['engine', 'publisher'])(
  '%s > names the database as the cause when PostgreSQL ends the connection that reads the log keys',
  async (name) => {
    const url = db.urlFor(`svc_${name}`);
    const proxy = await TcpProxy.open(url, 'postgres');
    const matches = (sql: string): boolean => /kind = 3 and leaf_index >= \$1/.test(sql);
    const broken = proxy.set({ matches, breaks: 'unsent' });
    const program = await start(name, { DATABASE_URL: proxy.urlFor(url) });
    await broken;
    expect(await program.exited).toBe(1);
    await proxy.close();
    expect(program.stderr.join('\n')).toMatch(
      /"level":"fatal".*"msg":"the database cannot be reached: /,
    );
  },
  60_000,
);
