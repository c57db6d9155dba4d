import { defineConfig } from "vite";

// The build is committed, so that users need no Node; a test builds again and compares byte by byte.
// Addresses are relative, so that the page works below any path of a reverse proxy.
export default defineConfig({
  base: "./",
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: {
    outDir: "../src/handrail_server/assets",
    emptyOutDir: true,
    target: "es2022",
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    rolldownOptions: {
      output: {
        entryFileNames: "assets/console-[hash].js",
        assetFileNames: "assets/console-[hash][extname]",
        codeSplitting: false,
      },
    },
  },
  server: { proxy: { "/api": process.env.HANDRAIL_SERVER ?? "http://127.0.0.1:8321" } },
});
