import { defineConfig } from 'rolldown';

const bundle = (script, dir) => ({
  cwd: new URL('../../dist/', import.meta.url).pathname,
  input: { [script]: `api/browser/${script}.js` },
  platform: 'browser',
  output: {
    dir,
    cleanDir: true,
    format: 'esm',
    minify: true,
    chunkFileNames: '[name].js',
  },
  // Every warning fails the build.
  onLog: (_level, log) => {
    throw new Error(log.message);
  },
});

// Bundles the compiled scripts of the pages. Only readers with a pinned key load prove.js.
export default defineConfig([bundle('verify', 'page'), bundle('approve', 'approval-page')]);
