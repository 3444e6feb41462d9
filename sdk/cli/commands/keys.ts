import { readPublicKeysHttp } from '../../index.js';
import type { Command } from '../command.js';
import { EXIT } from '../exit-code.js';

export const keys: Command = {
  name: 'keys',
  summary: 'The keys that the registry publishes, as a file to pin',
  usage: '',
  takes: { least: 0, most: 0 },
  description:
    'Needs SVC_PUBLIC_URL and no key. What it prints is what `verify --offline --pins` takes. To pin\n' +
    'it is to believe the registry once: compare the keys with what the operator gave out elsewhere.',
  options: {},
  examples: ['svc keys > pins.json'],
  run: async ({ registry, terminal }) => {
    const { record } = await readPublicKeysHttp(registry());
    terminal.printJson(record);
    return EXIT.yes;
  },
};
