import { fromUtf8, toHex } from '#protocol/bytes';
import { ProtocolError } from '#protocol/errors';
import { claimedSigners } from '#protocol/note';
import type { PinnedKeys } from '#protocol/snapshot/trust';
import { OperatorError } from '#runtime/process/operator-error';

/**
 * What is published is signed by a key that this publisher does not know, as after a change of keys
 * that it missed. It does not lead: it cannot prove that it extends what that key signed.
 */
export class UnknownSigner extends OperatorError {
  override name = 'UnknownSigner';

  /** @param key `name+hex(key id)` */
  constructor(
    readonly key: string,
    variables: 'LOG' | 'SNAPSHOT',
    where: string,
    cause: unknown,
  ) {
    super(
      `${where} is signed by ${key}, a key that this publisher does not know. It signs nothing and leaves the lead to others. ` +
        `If the key was changed, restart this publisher with the new ${variables}_KEY_FILE and the earlier keys in ${variables}_RETIRED_VKEYS; ` +
        'if it was not, find out who signed before you go on.',
      { cause },
    );
  }
}

/**
 * The error to throw for a note that cannot be opened: null unless the cause is that an unknown key
 * of the pinned name signed the note.
 */
export function unknownSigner(
  note: Uint8Array,
  pinned: PinnedKeys,
  variables: 'LOG' | 'SNAPSHOT',
  where: string,
  cause: unknown,
): UnknownSigner | null {
  if (!(cause instanceof ProtocolError) || cause.code !== 'unknown_signer') return null;
  const isPinned = (id: string): boolean => pinned.some(({ keyHash }) => toHex(keyHash) === id);
  const signer = claimedSigners(fromUtf8(note)).find(
    ({ name, id }) => name === pinned[0].name && !isPinned(id),
  );
  return signer === undefined
    ? null
    : new UnknownSigner(`${signer.name}+${signer.id}`, variables, where, cause);
}
