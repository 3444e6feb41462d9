import { formatVkey, type LogVkey, parseVkey } from '#protocol/note';
import { nativeSha256 } from '#runtime/crypto/node';
import { appendLogKeyChange, logKeysIn } from '#sql/lifecycle/log-keys';
import { pinsOf } from '../pins.js';
import { pinning } from '../trust.js';
import { confirmOption, Outcome, requireConfirmed, type AddCommand } from './command.js';

const EXAMPLE = 'log.example.org/2026+0a1b2c3d+AR…';

const vkeyOf = (text: string): LogVkey => pinning('the vkey', () => parseVkey(text, nativeSha256));

export function addLogKeyCommands(add: AddCommand): void {
  add(
    'log-key activate <vkey>',
    'Activate a key that signs checkpoints; readers accept the key once a checkpoint covers its entry',
    EXAMPLE,
    async ({ act }, vkey: string) => {
      const key = vkeyOf(vkey);
      const { leafIndex } = await act((tx) => appendLogKeyChange(tx, key, 'activate'));
      return { vkey, change: 'activate', leaf_index: leafIndex };
    },
  );
  add(
    'log-key retire <vkey>',
    'Retire a key that signs checkpoints; checkpoints that it signs later do not count',
    `${EXAMPLE} --confirm ${EXAMPLE}`,
    async ({ act }, vkey: string, { confirm }: { confirm: string }) => {
      requireConfirmed(confirm, vkey);
      const key = vkeyOf(vkey);
      const { leafIndex, fromSize } = await act((tx) => appendLogKeyChange(tx, key, 'retire'));
      return { vkey, change: 'retire', leaf_index: leafIndex, from_size: fromSize };
    },
  ).requiredOption(...confirmOption('vkey'));
  add(
    'log-key list',
    'List the keys that sign checkpoints, with the size up to which checkpoints of a retired key count',
    '',
    async ({ database }) =>
      (await logKeysIn(await database())).map(({ name, publicKey, maxSize = null }) => ({
        vkey: formatVkey(nativeSha256, name, publicKey),
        state: maxSize === null ? 'active' : 'retired',
        from_size: maxSize,
      })),
  );
  add(
    'pins',
    'Print the public keys of the log that readers pin, for PINS_FILE and svc --pins',
    '> pins.json',
    async ({ database }) => {
      const document = await pinsOf(await database());
      return new Outcome(document, { text: `${JSON.stringify(document, null, 2)}\n` });
    },
  );
}
