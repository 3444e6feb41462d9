import type { Command } from './command.js';
import { admit } from './commands/admit.js';
import { exportProof } from './commands/export.js';
import { follow } from './commands/follow.js';
import { inclusion } from './commands/inclusion.js';
import { keys } from './commands/keys.js';
import { lookup } from './commands/lookup.js';
import { replay } from './commands/replay.js';
import { verify } from './commands/verify.js';

export const COMMANDS: readonly Command[] = [
  lookup,
  verify,
  admit,
  follow,
  exportProof,
  inclusion,
  replay,
  keys,
];
