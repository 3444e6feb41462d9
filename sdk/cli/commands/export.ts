import { utf8 } from '../../../protocol/bytes.js';
import { canonicalJson, exportProofHttp, type ExportFormat } from '../../index.js';
import { text, type Command } from '../command.js';
import { EXIT } from '../exit-code.js';
import { deliver } from '../deliver.js';
import { UsageError } from '../usage-error.js';

const FORMATS = ['json', 'aep-json', 'pdf'] as const satisfies readonly ExportFormat[];

export const exportProof: Command = {
  name: 'export',
  summary: 'A proof as a file: all that checking it offline takes, its AEP, or a paper',
  usage: 'PROOF_ID',
  takes: { least: 1, most: 1 },
  description:
    'Needs SVC_ENGINE_URL, SVC_TENANT_ID and a key. The file is written whole or not at all, byte\n' +
    'for byte as the engine gave it out. With --json and --out, the hashes of what was asked and\n' +
    'answered are printed. Just after an admission it exits 3: not verified, or under no checkpoint.',
  options: {
    format: { type: 'string', value: 'FORMAT', help: `${FORMATS.join(', ')}; json` },
    out: { type: 'string', short: 'o', value: 'FILE', help: 'else standard output' },
  },
  examples: [
    'svc export 019aa2c1e07b7c0f8a3e5d6b7c8d9e0f -o proof.json',
    'svc export 019aa2c1e07b7c0f8a3e5d6b7c8d9e0f --format pdf -o proof.pdf',
  ],
  run: async ({ args: [id = ''], values, json, engine, terminal }) => {
    const out = text(values, 'out');
    const asked = text(values, 'format') ?? 'json';
    const format = FORMATS.find((one) => one === asked);
    if (format === undefined) throw new UsageError(`--format takes one of ${FORMATS.join(', ')}`);
    if (format === 'pdf' && out === undefined && terminal.outIsTerminal) {
      throw new UsageError('a PDF is nothing for a terminal: give --out FILE');
    }
    const envelope = await exportProofHttp(engine(), { proof_id: id, format });
    const { response } = envelope;
    const bytes = response instanceof Uint8Array ? response : utf8(canonicalJson(response));
    await deliver(terminal, { bytes, out, json, envelope });
    return EXIT.yes;
  },
};
