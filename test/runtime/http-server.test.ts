import { expect, it } from 'vitest';
import { listen } from '#runtime/http/server';

it('listen > names the setting when the address does not belong to this host', async () => {
  const elsewhere = listen(() => undefined, { host: '192.0.2.1', port: 0 });
  await expect(elsewhere).rejects.toThrow('set LISTEN_ADDRESS');
});
