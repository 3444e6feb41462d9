import type { ReaderText } from '../../docs/reader.js';
import { PROBLEMS } from '../http/problem.js';
import { GUIDE } from './guide.js';

/** The texts of the documentation page that the OpenAPI document does not have. */
export const READER_TEXT: ReaderText = {
  guide: GUIDE,
  problems: PROBLEMS,
  credentialsOf: () => [],
  shell: {
    about:
      'Set your own values once; you can then paste the examples below unchanged. Every id of a proof ' +
      'is derived from the proof id.',
    setup: `export SVC_URL=http://127.0.0.1:8081
export PROOF_ID=… # registry_proof_id of a receipt
export PACKAGE_ID=pkg_… # package_id of a trust package
export SHARE_TOKEN=share_…
export TILE=entries/… # as in downloads.entry_bundle of a verdict`,
    inPath: {
      proof_id: '$PROOF_ID',
      certificate_id: 'cert_$PROOF_ID',
      passport_id: 'pass_$PROOF_ID',
      trust_id: 'trust_$PROOF_ID',
      trust_asset_id: 'asset_$PROOF_ID',
      share_token: '$SHARE_TOKEN',
      package_id: '$PACKAGE_ID',
      leaf_index: '0',
      tile: '$TILE',
    },
    queries: { verifyIdentifier: '?identifier=exec_$PROOF_ID', page: '?id=$PROOF_ID' },
    headersOf: () => [],
    inBody: [
      [/^( {2}"proof_id": )"[^"]*"/gm, '$1"$PROOF_ID"'],
      [/^( {2}"identifier": )"exec_[^"]*"/gm, '$1"exec_$PROOF_ID"'],
    ],
  },
};
